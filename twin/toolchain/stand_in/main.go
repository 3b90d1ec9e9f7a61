// Command stand-in does the observable part of programs whose images a twin cannot pull.
//
// It is called by the names of those programs. What they would ask of a driver or of a cloud it asks
// of the agent of the machine it runs on, which answers where a cloud's metadata service does.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	agent       = "http://169.254.169.254/everstep"
	kubelet     = "/var/lib/kubelet/device-plugins/kubelet.sock"
	patience    = 5 * time.Second
	retryPeriod = time.Second
)

// parts are the programs that there is a stand-in for, by the name each is started with.
var parts = map[string]func(){
	"nvidia-device-plugin": offerDevices,
	"dcgm-exporter":        exportLoad,
	"cluster-autoscaler":   beHealthy,
}

func main() {
	log.SetFlags(log.Ltime)
	part, known := parts[filepath.Base(os.Args[0])]
	if !known {
		log.Fatalf("there is no stand-in for %q", os.Args[0])
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM) // the first process of a container gets no default
	go part()
	<-signals
}

// offerDevices lets the machine offer its GPUs for as long as this process lives.
func offerDevices() {
	if _, err := os.Stat(kubelet); err != nil {
		log.Fatalf("the kubelet cannot be told of devices: %v", err)
	}
	for ; ; time.Sleep(retryPeriod) {
		answer, err := http.Get(agent + "/devices")
		if err != nil {
			log.Printf("no machine answers: %v", err)
			continue
		}
		log.Print("the devices are offered")
		io.Copy(io.Discard, answer.Body) // ends when the machine's agent does
		answer.Body.Close()
	}
}

// exportLoad shows the machine's load to Prometheus under the names of a GPU's.
func exportLoad() {
	client := http.Client{Timeout: patience}
	http.HandleFunc("/metrics", func(response http.ResponseWriter, _ *http.Request) {
		answer, err := client.Get(agent + "/load")
		if err != nil {
			http.Error(response, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer answer.Body.Close()
		response.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
		io.Copy(response, answer.Body)
	})
	serve(environment("DCGM_EXPORTER_LISTEN", ":9400"), "/health")
}

// beHealthy is all of an autoscaler that shows: the machines are made and taken by the twin's cloud,
// which looks whether this process runs before it acts.
func beHealthy() {
	address := ":8085"
	for _, argument := range os.Args[1:] {
		if given, found := strings.CutPrefix(argument, "--address="); found {
			address = given
		}
	}
	serve(address, "/health-check")
}

func serve(address, health string) {
	http.HandleFunc(health, func(response http.ResponseWriter, _ *http.Request) { fmt.Fprintln(response, "OK") })
	log.Fatal(http.ListenAndServe(address, nil))
}

func environment(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}
