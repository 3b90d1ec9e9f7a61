// The process that holds a pod's namespaces open.
module everstep/toolchain/pause

go 1.26
