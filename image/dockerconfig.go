package image

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/bourse-dev/bourse"
)

// login is the credentials that are sent to a registry. Without a name the secret is a token.
type login struct{ name, secret string }

// parseDockerConfig reads the "auths" of docker's config.json: the credentials
// that "docker login" has stored in the file itself. Credential helpers are not
// asked. The result is by host as images name it.
func parseDockerConfig(raw []byte) (map[string]login, error) {
	var file struct {
		Auths map[string]struct {
			Auth          string `json:"auth"` // base64 of name:password
			Username      string `json:"username"`
			Password      string `json:"password"`
			IdentityToken string `json:"identitytoken"`
		} `json:"auths"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, err
	}
	out := map[string]login{}
	for key, a := range file.Auths {
		l := login{name: a.Username, secret: a.Password}
		if a.Auth != "" {
			text, err := base64.StdEncoding.DecodeString(a.Auth)
			if err != nil {
				return nil, fmt.Errorf("auth of %q: %w", key, err)
			}
			name, secret, ok := strings.Cut(strings.TrimRight(string(text), "\x00"), ":")
			if !ok {
				return nil, fmt.Errorf("auth of %q has no colon", key)
			}
			l = login{name: name, secret: secret}
		}
		if a.IdentityToken != "" {
			l = login{secret: a.IdentityToken}
		}
		if l != (login{}) {
			out[loginHost(key)] = l
		}
	}
	return out, nil
}

// loginHost returns the host of a key of docker's file, which may be an address:
// "https://index.docker.io/v1/" is the Docker Hub.
func loginHost(key string) string {
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
