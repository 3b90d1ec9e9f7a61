package main

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A privateRegistry is a registry of a cloud account.
//
// Pull and Push are accepted passwords by user name; users of Push may pull as well. Repositories tells for each existing
// repository whether its tags are immutable; null means that a push creates a repository, as on ACR.
type privateRegistry struct {
	ID           string            `json:"id"`
	Pull         map[string]string `json:"pull"`
	Push         map[string]string `json:"push"`
	Repositories map[string]bool   `json:"repositories"`
}

// rules are the private registries by host name, and the users who may push to public registries.
type rules struct {
	Registries map[string]privateRegistry `json:"registries"`
	Publishers map[string]string          `json:"publishers"`
}

// A gate refuses the requests that the registries of clouds refuse, and forwards all others to the images.
type gate struct {
	images http.Handler
	rules  string
}

// address matches the path of a request: the repository, the kind of object, and the tag or digest.
var address = regexp.MustCompile(`^/v2/(.+)/(manifests|blobs|tags|referrers)/(.*)$`)

var manifestKinds = []string{
	"application/vnd.oci.image.manifest.v1+json",
	"application/vnd.oci.image.index.v1+json",
	"application/vnd.docker.distribution.manifest.v2+json",
	"application/vnd.docker.distribution.manifest.list.v2+json",
}

func (g *gate) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	current, err := g.read()
	if err != nil {
		refuse(response, http.StatusServiceUnavailable, "UNAVAILABLE", err.Error())
		return
	}
	if host := request.URL.Query().Get("ns"); host != "" {
		name := strings.TrimPrefix(request.URL.Path, "/v2/")
		request.URL.Path = "/v2/" + repositoryOf(host) + "/" + name
	}
	parts := address.FindStringSubmatch(request.URL.Path)
	if parts == nil {
		g.servePing(response, request, current)
		return
	}
	host, repository, _ := strings.Cut(parts[1], "/")
	if g.refuses(response, request, current, host, repository) {
		return
	}
	if request.Method == http.MethodPut && parts[2] == "manifests" {
		immutable := current.Registries[host].Repositories[repository]
		if immutable && g.isTaken(request, parts[1], parts[3]) {
			refuse(response, http.StatusBadRequest, "TAG_INVALID", fmt.Sprintf(
				"The image tag '%s' already exists in the '%s' repository and cannot be overwritten because the tag is immutable.",
				parts[3], repository))
			return
		}
	}
	g.images.ServeHTTP(response, request)
}

// servePing serves /v2/, where registries challenge clients that have no valid credentials.
func (g *gate) servePing(response http.ResponseWriter, request *http.Request, current rules) {
	user, password, _ := request.BasicAuth()
	accepted := accepts(current.Publishers, user, password)
	for _, registry := range current.Registries {
		accepted = accepted || accepts(registry.Push, user, password) || accepts(registry.Pull, user, password)
	}
	if !accepted {
		challenge(response, request.Host)
		return
	}
	g.images.ServeHTTP(response, request)
}

// refuses reports whether a request lacks valid credentials or a repository that exists, and responds if so.
func (g *gate) refuses(response http.ResponseWriter, request *http.Request, current rules, host, repository string) bool {
	user, password, _ := request.BasicAuth()
	reading := request.Method == http.MethodGet || request.Method == http.MethodHead
	registry, private := current.Registries[host]
	allowed := accepts(registry.Push, user, password) || reading && accepts(registry.Pull, user, password)
	if !private {
		allowed = reading || accepts(current.Publishers, user, password)
	}
	if !allowed {
		challenge(response, host)
		return true
	}
	_, exists := registry.Repositories[repository]
	if private && registry.Repositories != nil && !exists {
		refuse(response, http.StatusNotFound, "NAME_UNKNOWN", fmt.Sprintf(
			"The repository with name '%s' does not exist in the registry with id '%s'", repository, registry.ID))
		return true
	}
	return false
}

// isTaken reports whether a tag already exists. ECR refuses to push even the same image again.
func (g *gate) isTaken(request *http.Request, repository, tag string) bool {
	if strings.Contains(tag, ":") {
		return false // a digest
	}
	head := httptest.NewRequest(http.MethodHead, "/v2/"+repository+"/manifests/"+tag, nil)
	for _, kind := range manifestKinds {
		head.Header.Add("Accept", kind)
	}
	recorder := httptest.NewRecorder()
	g.images.ServeHTTP(recorder, head.WithContext(request.Context()))
	return recorder.Code == http.StatusOK
}

// read returns all rules: one file for each cloud, and one for the publishers.
func (g *gate) read() (rules, error) {
	all := rules{Registries: map[string]privateRegistry{}, Publishers: map[string]string{}}
	files, err := filepath.Glob(filepath.Join(g.rules, "*.json"))
	if err != nil {
		return all, err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return all, err
		}
		fileRules := rules{}
		if err := json.Unmarshal(content, &fileRules); err != nil {
			return all, fmt.Errorf("%s: %w", file, err)
		}
		maps.Copy(all.Registries, fileRules.Registries)
		maps.Copy(all.Publishers, fileRules.Publishers)
	}
	return all, nil
}

func accepts(users map[string]string, user, password string) bool {
	expected, exists := users[user]
	return exists && subtle.ConstantTimeCompare([]byte(expected), []byte(password)) == 1
}

// repositoryOf returns a host as the first part of a repository, where a colon is not allowed.
func repositoryOf(host string) string {
	return strings.ReplaceAll(host, ":", "_")
}

func challenge(response http.ResponseWriter, host string) {
	response.Header().Set("WWW-Authenticate", fmt.Sprintf(`Basic realm="https://%s/"`, host))
	refuse(response, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
}

func refuse(response http.ResponseWriter, status int, code, message string) {
	response.Header().Set("Content-Type", "application/json")
	response.WriteHeader(status)
	_ = json.NewEncoder(response).Encode(map[string]any{
		"errors": []map[string]string{{"code": code, "message": message}},
	})
}
