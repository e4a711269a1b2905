# A reference for AWS: the bucket, the database, places for the secrets, and roles that may do what
# workers and MLflow need and nothing else. The network and the cluster are yours and are given.
# State holds no secret: RDS makes its own password, the others are put in by hand.
terraform {
  required_version = ">= 1.9"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.100"
    }
  }
}

provider "aws" {
  region = var.region

  default_tags {
    tags = { project = var.name }
  }
}
