"""Many hosts over SSH: the ones of an Ansible inventory, reached with Fabric."""
