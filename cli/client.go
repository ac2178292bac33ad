package cli

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/loopback"
	"github.com/bourse-dev/bourse/machinesapi"
)

// DefaultAPI is where a broker listens and where the verbs look for one,
// by default.
const DefaultAPI = "127.0.0.1:4280"

// baseURL returns the API's address with its scheme.
func (s *Shell) baseURL() string {
	base := s.target().API
	if !strings.Contains(base, "://") {
		scheme := "http://"
		if ca, err := s.trusted(); ca != "" || err != nil {
			scheme = "https://"
		}
		base = scheme + base
	}
	return base
}

// Client returns the client of the API.
func (s *Shell) Client() *machinesapi.Client {
	return &machinesapi.Client{BaseURL: s.baseURL(), Token: s.credential(), HTTP: &http.Client{Transport: s.transport()}}
}

// credential returns the token that is shown to the API: that of --token, of the
// context, of the environment, or of a broker on loopback the one that it made; ""
// when there is none.
func (s *Shell) credential() string {
	if token := cmp.Or(s.token, s.target().Token, s.Getenv("BOURSE_API_TOKEN")); token != "" {
		return token
	}
	return loopback.Find(s.Getenv, s.baseURL())
}

// WarnMissing warns which workers' machines, or what else, a list lacks.
func (s *Shell) WarnMissing(silent []bourse.WorkerID, what string) {
	if len(silent) > 0 {
		names := make([]string, len(silent))
		for i, w := range silent {
			names[i] = Clean(string(w))
		}
		s.Note("warning: no answer from " + strings.Join(names, ", ") + ": their " + what + " are missing here")
	}
}
