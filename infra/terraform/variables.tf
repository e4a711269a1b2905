variable "name" {
  description = "What everything is called, and the first part of the bucket's name."
  type        = string
  default     = "lsm"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,20}$", var.name))
    error_message = "A name has 2 to 21 lower-case letters, digits and hyphens, a letter first."
  }
}

variable "region" {
  description = "Where everything lies."
  type        = string

  validation {
    condition     = can(regex("^[a-z]{2}(-[a-z]+)+-[0-9]$", var.region))
    error_message = "A region looks like eu-central-1."
  }
}

variable "vpc_id" {
  description = "The network of the cluster."
  type        = string

  validation {
    condition     = startswith(var.vpc_id, "vpc-")
    error_message = "A network's id starts with vpc-."
  }
}

variable "database_subnet_ids" {
  description = "Private subnets for the database, in two availability zones or more."
  type        = list(string)

  validation {
    condition     = length(var.database_subnet_ids) >= 2
    error_message = "RDS needs subnets in at least two availability zones."
  }
}

variable "client_security_group_ids" {
  description = "Security groups of the nodes on which Prefect server and MLflow run; only they reach the database."
  type        = set(string)

  validation {
    condition     = length(var.client_security_group_ids) >= 1
    error_message = "Name at least one security group, else nothing reaches the database."
  }
}

variable "oidc_provider_arn" {
  description = "Identity provider of the EKS cluster, by which its service accounts take roles."
  type        = string

  validation {
    condition     = can(regex("^arn:aws[a-z-]*:iam::[0-9]{12}:oidc-provider/.+", var.oidc_provider_arn))
    error_message = "Expected an ARN like arn:aws:iam::<account>:oidc-provider/<issuer>."
  }
}

variable "namespace" {
  description = "Kubernetes namespace of the service accounts, as in infra/kubernetes."
  type        = string
  default     = "lsm"
}

variable "database_class" {
  description = "Size of the database. The smallest serves a dozen workers."
  type        = string
  default     = "db.t4g.small"

  validation {
    condition     = startswith(var.database_class, "db.")
    error_message = "A class of RDS starts with db."
  }
}

variable "database_storage_gib" {
  description = "First size of the database's disk; it grows to five times that by itself."
  type        = number
  default     = 20

  validation {
    condition     = var.database_storage_gib >= 20 && var.database_storage_gib <= 1000
    error_message = "Between 20 and 1000 GiB."
  }
}

variable "database_standby" {
  description = "Whether a second database in another zone takes over when the first fails."
  type        = bool
  default     = false
}

variable "backup_days" {
  description = "Days for which the database can be restored to any minute, and replaced objects are kept."
  type        = number
  default     = 14

  validation {
    condition     = var.backup_days >= 1 && var.backup_days <= 35
    error_message = "RDS keeps back-ups for 1 to 35 days."
  }
}
