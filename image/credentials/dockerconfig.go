// Package credentials reads credentials for image registries that were stored by "docker login".
//
// [Parse] reads a config.json file, which is sufficient for a worker. On a user's host, the file may instead name
// credential helpers, which are programs that store passwords. [File.Of] also runs credential helpers.
package credentials

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Login contains the credentials for a registry. If Name is empty, Secret is a token. The
// zero value means no credentials.
type Login struct{ Name, Secret string }

// File contains the settings for registries in docker's config.json. Registries are identified by
// their hosts in image names, such as "registry.example.com:5000".
type File struct {
	Logins  map[string]Login  // credentials stored in the file itself, by registry
	Helpers map[string]string // credential helpers by registry; "pass" means the program docker-credential-pass
	Store   string            // credential helper for all other registries; "" means none
}

// Parse parses a config.json and ignores unrelated fields. Errors do not contain secrets.
func Parse(raw []byte) (File, error) {
	var file struct {
		Auths map[string]struct {
			Auth          string `json:"auth"` // base64 of name:password
			Username      string `json:"username"`
			Password      string `json:"password"`
			IdentityToken string `json:"identitytoken"`
		} `json:"auths"`
		CredHelpers map[string]string `json:"credHelpers"`
		CredsStore  string            `json:"credsStore"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return File{}, err
	}
	out := File{Logins: map[string]Login{}, Helpers: map[string]string{}, Store: file.CredsStore}
	for key, a := range file.Auths {
		l := Login{Name: a.Username, Secret: a.Password}
		if a.Auth != "" {
			text, err := base64.StdEncoding.DecodeString(a.Auth)
			if err != nil {
				return File{}, fmt.Errorf("auth of %q: %w", key, err)
			}
			name, secret, ok := strings.Cut(strings.TrimRight(string(text), "\x00"), ":")
			if !ok {
				return File{}, fmt.Errorf("auth of %q has no colon", key)
			}
			l = Login{Name: name, Secret: secret}
		}
		if a.IdentityToken != "" {
			l = Login{Secret: a.IdentityToken}
		}
		if l != (Login{}) {
			out.Logins[hostOf(key)] = l
		}
	}
	for key, helper := range file.CredHelpers {
		out.Helpers[hostOf(key)] = helper
	}
	return out, nil
}

// hostOf returns the registry host for a key in docker's file. The key may be a URL. "https://index.docker.io/v1/"
// stands for Docker Hub.
func hostOf(key string) string {
	_, host, ok := strings.Cut(key, "://")
	if !ok {
		host = key
	}
	host, _, _ = strings.Cut(host, "/")
	switch host {
	case "index.docker.io", "docker.io":
		return bourse.DefaultRegistry
	}
	return host
}
