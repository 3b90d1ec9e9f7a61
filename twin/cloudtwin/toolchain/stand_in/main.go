// Command stand-in has the observable behaviour of programs whose images a twin cannot pull.
//
// It is started under the names of those programs. They would use a driver or a cloud; it uses the
// agent of its machine, which serves the address of a cloud's metadata service.
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
	agent       = "http://169.254.169.254/cloudtwin"
	kubelet     = "/var/lib/kubelet/device-plugins/kubelet.sock"
	loadTimeout = 5 * time.Second
	retryPeriod = time.Second
)

// programs are the replaced programs by the names under which they are started.
var programs = map[string]func(){
	"nvidia-device-plugin": offerDevices,
	"dcgm-exporter":        exportLoad,
	"cluster-autoscaler":   serveHealth,
	"prometheus":           serveReadiness,
}

func main() {
	log.SetFlags(log.Ltime)
	run, known := programs[filepath.Base(os.Args[0])]
	if !known {
		log.Fatalf("there is no stand-in for %q", os.Args[0])
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM) // process 1 of a container has no default handlers
	go run()
	<-signals
}

// offerDevices keeps a connection to the machine's agent open, which offers the GPUs meanwhile.
func offerDevices() {
	if _, err := os.Stat(kubelet); err != nil {
		log.Fatalf("cannot register devices with the kubelet: %v", err)
	}
	for ; ; time.Sleep(retryPeriod) {
		response, err := http.Get(agent + "/devices")
		if err != nil {
			log.Printf("cannot reach the machine's agent: %v", err)
			continue
		}
		log.Print("the machine's agent offers the devices")
		io.Copy(io.Discard, response.Body) // until the agent ends
		response.Body.Close()
	}
}

// exportLoad exports the machine's load to Prometheus under the names of GPU metrics.
func exportLoad() {
	client := http.Client{Timeout: loadTimeout}
	http.HandleFunc("/metrics", func(writer http.ResponseWriter, _ *http.Request) {
		response, err := client.Get(agent + "/load")
		if err != nil {
			http.Error(writer, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer response.Body.Close()
		writer.Header().Set("Content-Type", response.Header.Get("Content-Type"))
		io.Copy(writer, response.Body)
	})
	serve(environment("DCGM_EXPORTER_LISTEN", ":9400"), "/health")
}

// serveHealth serves the health check of an autoscaler. The twin's capacity daemon creates and removes
// the machines if this process runs.
func serveHealth() {
	address := ":8085"
	for _, argument := range os.Args[1:] {
		if given, found := strings.CutPrefix(argument, "--address="); found {
			address = given
		}
	}
	serve(address, "/health-check")
}

// serveReadiness serves the readiness check of Prometheus. It scrapes nothing: the twin has no managed Prometheus
// that would take the samples.
func serveReadiness() { serve(":9090", "/-/ready") }

// serve serves the default handlers and a health check.
func serve(address, healthPath string) {
	http.HandleFunc(healthPath, func(writer http.ResponseWriter, _ *http.Request) { fmt.Fprintln(writer, "OK") })
	log.Fatal(http.ListenAndServe(address, nil))
}

// environment returns an environment variable, or the default value if it is empty.
func environment(name, defaultValue string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return defaultValue
}
