// Stands in for programs of a cloud whose images cannot be pulled: the part of each that can be observed.
module everstep/toolchain/stand-in

go 1.26
