# PostgreSQL for Prefect and MLflow. infra/postgres/databases.sh makes their roles and databases.
resource "aws_db_subnet_group" "database" {
  name       = var.name
  subnet_ids = var.database_subnet_ids
}

resource "aws_security_group" "database" {
  name        = "${var.name}-database"
  description = "PostgreSQL, for Prefect server and MLflow alone"
  vpc_id      = var.vpc_id
}

resource "aws_vpc_security_group_ingress_rule" "database" {
  for_each = var.client_security_group_ids

  security_group_id            = aws_security_group.database.id
  referenced_security_group_id = each.value
  description                  = "PostgreSQL"
  ip_protocol                  = "tcp"
  from_port                    = 5432
  to_port                      = 5432
}

resource "aws_db_parameter_group" "database" {
  name   = var.name
  family = "postgres17"

  parameter {
    name  = "rds.force_ssl"
    value = "1"
  }
}

resource "aws_db_instance" "database" {
  identifier     = var.name
  engine         = "postgres"
  engine_version = "17"
  instance_class = var.database_class

  username                    = "postgres"
  manage_master_user_password = true

  allocated_storage     = var.database_storage_gib
  max_allocated_storage = 5 * var.database_storage_gib
  storage_type          = "gp3"
  storage_encrypted     = true
  kms_key_id            = aws_kms_key.data.arn

  db_subnet_group_name   = aws_db_subnet_group.database.name
  vpc_security_group_ids = [aws_security_group.database.id]
  parameter_group_name   = aws_db_parameter_group.database.name
  publicly_accessible    = false
  multi_az               = var.database_standby

  backup_retention_period    = var.backup_days
  copy_tags_to_snapshot      = true
  auto_minor_version_upgrade = true
  deletion_protection        = true
  skip_final_snapshot        = false
  final_snapshot_identifier  = "${var.name}-final"

  enabled_cloudwatch_logs_exports = ["postgresql"]
}
