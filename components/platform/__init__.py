"""The platform of a training job: etcd, the controller, node services, policies and quotas."""
