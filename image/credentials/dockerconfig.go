// Package credentials reads what "docker login" has stored: the credentials that
// registries of images are shown.
//
// [Parse] reads the file config.json itself, which is all that a worker does. A person's
// file may name helpers instead, programs that keep passwords elsewhere: [File.Of] asks
// them as well.
package credentials

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Login is the credentials that are sent to a registry. Without a name the secret is a
// token. The zero value is none.
type Login struct{ Name, Secret string }

// File is what a config.json of docker says about registries, each by its host as
// images name it: "registry.example.com:5000".
type File struct {
	Logins  map[string]Login  // stored in the file itself
	Helpers map[string]string // the helper that keeps a registry's: "pass" is the program docker-credential-pass
	Store   string            // the helper of every other registry; "": none
}

// Parse reads a config.json. What is not about registries is passed over. The error
// never holds a secret.
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

// hostOf returns the host of a key of docker's file, which may be an address:
// "https://index.docker.io/v1/" is the Docker Hub.
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
