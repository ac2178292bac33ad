package fabric

import (
	"net/http"
	"slices"

	"github.com/bourse-dev/bourse"
)

// The verbs of workers are all that a server can ask of one. Each stands in the
// file of its noun, with the types of its request and reply that are only its own. A
// new one needs a handler in package worker; if it is for people, a path of the public
// API, which docs/api.md describes and a command uses. Tests fail until all of that
// exists.

// table has the verbs in the order of their files and declarations. It is complete when
// the program starts.
var table []Spec

// Verbs returns all verbs.
func Verbs() []Spec { return slices.Clone(table) }

// act declares a verb that changes something. Brokers may use it, and others.
func act[Req, Rep any](name string, others ...bourse.Role) Verb[Req, Rep] {
	return Verb[Req, Rep]{declare[Req, Rep](Spec{Name: name, Method: http.MethodPost}, others)}
}

// read declares a verb that changes nothing.
func read[Req, Rep any](name string, others ...bourse.Role) Verb[Req, Rep] {
	return Verb[Req, Rep]{declare[Req, Rep](Spec{Name: name, Method: http.MethodGet}, others)}
}

func lines[Req, Line any](name, method string, others ...bourse.Role) Lines[Req, Line] {
	return Lines[Req, Line]{declare[Req, Line](Spec{Name: name, Method: method}, others)}
}

func pipe[Req any](name, method string, others ...bourse.Role) Pipe[Req] {
	return Pipe[Req]{declare[Req, struct{}](Spec{Name: name, Method: method, pipe: true}, others)}
}

func declare[Req, Rep any](s Spec, others []bourse.Role) Spec {
	s.Roles = append([]bourse.Role{bourse.RoleBroker}, others...)
	s.Request, s.Reply = func() any { return new(Req) }, func() any { return new(Rep) }
	table = append(table, s)
	return s
}
