package broker

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Queries answers people's questions about the view. Its handlers bound what
// they read and write, flush what they stream, and return when the request's
// context ends. An error that they return before the first byte is the reply;
// after it, the connection ends there.
type Queries interface {
	// Query answers POST /v1/view/queries.
	Query(w http.ResponseWriter, r *http.Request) error
	// Subscribe answers POST /v1/view/subscriptions.
	Subscribe(w http.ResponseWriter, r *http.Request) error
	// Resume answers GET /v1/view/subscriptions/{id}.
	Resume(w http.ResponseWriter, r *http.Request) error
	// Health tells how every member's copy of the view is.
	Health(ctx context.Context) (machinesapi.ViewHealth, error)
}

// errNoQueries is the error of a broker that was made without them.
func errNoQueries() error {
	return bourse.Errorf(bourse.CodeUnavailable, "this broker has no view to ask")
}

func (b *Broker) queryView(w http.ResponseWriter, r *request) error {
	return b.askView(w, r, Queries.Query)
}

func (b *Broker) subscribeView(w http.ResponseWriter, r *request) error {
	return b.askView(w, r, Queries.Subscribe)
}

func (b *Broker) resumeView(w http.ResponseWriter, r *request) error {
	return b.askView(w, r, Queries.Resume)
}

func (b *Broker) askView(w http.ResponseWriter, r *request, do func(Queries, http.ResponseWriter, *http.Request) error) error {
	if b.Queries == nil {
		return errNoQueries()
	}
	r.Body = http.MaxBytesReader(w, r.Body, machinesapi.MaxBody)
	return do(b.Queries, w, r.Request)
}

func (b *Broker) viewHealth(w http.ResponseWriter, r *request) error {
	if b.Queries == nil {
		return errNoQueries()
	}
	health, err := b.Queries.Health(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, health)
}
