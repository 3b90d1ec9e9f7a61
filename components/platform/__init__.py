"""What training stands on in the cluster: etcd, the controller, and how our pods are confined."""
