# `terraform test` plans with a pretended AWS: offline, no account.
mock_provider "aws" {
  mock_data "aws_iam_policy_document" {
    defaults = { json = "{}" }
  }
}

variables {
  region                    = "eu-central-1"
  vpc_id                    = "vpc-0123456789abcdef0"
  database_subnet_ids       = ["subnet-1", "subnet-2"]
  client_security_group_ids = ["sg-1"]
  oidc_provider_arn         = "arn:aws:iam::123456789012:oidc-provider/oidc.eks.eu-central-1.amazonaws.com/id/EXAMPLE"
}

run "nothing_is_public" {
  command = plan

  assert {
    condition     = aws_s3_bucket_public_access_block.store.restrict_public_buckets && aws_s3_bucket_public_access_block.store.block_public_policy
    error_message = "The bucket can be made public."
  }

  assert {
    condition     = !aws_db_instance.database.publicly_accessible && aws_db_instance.database.storage_encrypted
    error_message = "The database is public or not encrypted."
  }
}

run "a_role_is_for_one_account_and_few_actions" {
  command = plan

  assert {
    condition     = toset(data.aws_iam_policy_document.permissions["worker"].statement[1].actions) == toset(["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"])
    error_message = "The worker may do something else with objects."
  }

  assert {
    condition     = anytrue([for each in data.aws_iam_policy_document.trust["worker"].statement[0].condition : contains(each.values, "system:serviceaccount:lsm:worker")])
    error_message = "Another service account may take the role."
  }
}

run "only_old_claims_go_after_a_day" {
  command = plan

  assert {
    condition     = [for each in aws_s3_bucket_lifecycle_configuration.store.rule : each.filter[0].prefix if anytrue([for old in each.noncurrent_version_expiration : old.noncurrent_days == 1])] == ["store/claims/"]
    error_message = "Versions of something else than claims are lost after a day."
  }
}

run "one_subnet_is_refused" {
  command = plan

  variables {
    database_subnet_ids = ["subnet-1"]
  }

  expect_failures = [var.database_subnet_ids]
}

run "a_wrong_region_is_refused" {
  command = plan

  variables {
    region = "Frankfurt"
  }

  expect_failures = [var.region]
}
