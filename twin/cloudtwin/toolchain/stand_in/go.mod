// Stands in for programs of a cloud whose images cannot be pulled, with the observable behaviour of each.
module everstep/toolchain/stand-in

go 1.26
