package fabric

import (
	"net/http"
	"slices"

	"github.com/bourse-dev/bourse"
)

// A verb is an operation that a server can request from a worker. Each verb is declared in the file for its kind of
// object, together with its types. A new verb needs a handler in package worker. A verb for users also needs a path in
// the public API, a description in docs/api.md, and a command. Tests fail until all of these exist.

// table lists the verbs in the order in which they are declared. It is complete once the package has been initialized.
var table []Spec

// Verbs returns all verbs.
func Verbs() []Spec { return slices.Clone(table) }

// act declares a verb that changes something. Brokers and the listed roles may use it.
func act[Req, Rep any](name string, others ...bourse.Role) Verb[Req, Rep] {
	return Verb[Req, Rep]{declare[Req, Rep](Spec{Name: name, Method: http.MethodPost}, others)}
}

// read declares a read-only verb. Brokers and the listed roles may use it.
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
