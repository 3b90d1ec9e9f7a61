// The registry of a twin: it stands in for the registries of the clouds and for public registries.
//
// One server has the images of every host. A node's containerd puts the host into the query (`?ns=HOST`, as for any
// mirror), a client on the twin's machine into the first part of the path: both reach the repository HOST/NAME.
// distribution's registry stores and serves images; this program adds the refusals of a cloud's registry: missing
// credentials, repositories that do not exist, and another image under an immutable tag.
package main

import (
	"context"
	"flag"
	"io"
	"log"
	"net/http"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
	"github.com/sirupsen/logrus"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:5000", "address and port")
	data := flag.String("data", "", "folder of images")
	rules := flag.String("rules", "", "folder of JSON files with the private registries")
	flag.Parse()
	server := &http.Server{
		Addr:              *listen,
		Handler:           &gate{images: store(*data), rules: *rules},
		ReadHeaderTimeout: 10 * time.Second,
	}
	log.Fatal(server.ListenAndServe())
}

// store returns the registry that keeps images in a folder.
func store(folder string) http.Handler {
	config := &configuration.Configuration{
		Storage: configuration.Storage{
			"filesystem": configuration.Parameters{"rootdirectory": folder},
			"delete":     configuration.Parameters{"enabled": true},
			"maintenance": configuration.Parameters{
				"uploadpurging": map[interface{}]interface{}{"enabled": false},
			},
		},
	}
	config.Log.AccessLog.Disabled = true
	config.HTTP.Secret = "one process serves all uploads"
	config.HTTP.RelativeURLs = true
	app := handlers.NewApp(context.Background(), config)
	logrus.SetOutput(io.Discard) // it logs every request, and an error for every image that does not exist yet
	return app
}
