output "store" {
  description = "LSM_STORE of the workers."
  value       = "s3://${aws_s3_bucket.store.bucket}/${local.folders.worker}"
}

output "artifacts" {
  description = "MLflow's --artifacts-destination."
  value       = "s3://${aws_s3_bucket.store.bucket}/${local.folders.mlflow}"
}

output "database_host" {
  description = "PGHOST of MLflow, and the host in Prefect's connection URL."
  value       = aws_db_instance.database.address
}

output "database_password_secret" {
  description = "Where RDS keeps the password of its first user `postgres`, who may make roles and databases."
  value       = aws_db_instance.database.master_user_secret[0].secret_arn
}

output "role_arns" {
  description = "For the annotation eks.amazonaws.com/role-arn of each service account."
  value       = { for account, role in aws_iam_role.service_account : account => role.arn }
}

output "secret_arns" {
  description = "Places whose values are put in by hand."
  value       = { for name, secret in aws_secretsmanager_secret.all : name => secret.arn }
}
