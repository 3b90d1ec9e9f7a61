// Command pause holds a pod's namespaces open until it is told to end, and reaps orphans meanwhile.
//
// It is the first process of every pod sandbox. It does not use upstream's, which is C and would
// make a C compiler a requirement of the machine.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

// reap collects every child that has ended; several may share one SIGCHLD.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 || (err != nil && err != syscall.EINTR) {
			return
		}
	}
}
