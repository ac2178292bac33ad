package tenant

import (
	"net/http"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"
)

// Unsupported serves them. Apps finds the app of a path.
type Unsupported struct{ Apps *lookup.Apps }

const (
	certificates = endpoint.OneApp + "/certificates"
	keys         = endpoint.OneApp + "/secretkeys"
)

const (
	noCertificate = "certificate not found: the proxies keep certificates, and not by app"
	noKey         = "secret key not found: this cluster keeps no keys for apps"

	makesNoCertificate = "certificates are kept by the proxies, not by app: start one with bourse serve proxy --acme or --certificates"
	makesNoKey         = "this cluster keeps no keys for apps: give a machine its key as a secret, and use it there"
)

// Routes returns what the handler serves.
func (h *Unsupported) Routes() []endpoint.Route {
	noCertificates := struct {
		Certificates []struct{} `json:"certificates"`
		NextCursor   string     `json:"next_cursor"`
		Total        int        `json:"total_count"`
	}{Certificates: []struct{}{}}
	noKeys := struct {
		Keys []struct{} `json:"secret_keys"`
	}{[]struct{}{}}
	return []endpoint.Route{
		endpoint.On("GET "+certificates, endpoint.App, h.none(noCertificates)).Writes(noCertificates),
		endpoint.On("GET "+certificates+"/{rest...}", endpoint.App, h.absent(noCertificate)),
		endpoint.On("DELETE "+certificates+"/{rest...}", endpoint.App, h.absent(noCertificate)),
		endpoint.On("POST "+certificates+"/{rest...}", endpoint.App, h.refuse(makesNoCertificate)).ReadsNothing(),
		endpoint.On("GET "+keys, endpoint.App, h.none(noKeys)).Writes(noKeys),
		endpoint.On("GET "+keys+"/{rest...}", endpoint.App, h.absent(noKey)),
		endpoint.On("DELETE "+keys+"/{rest...}", endpoint.App, h.absent(noKey)),
		endpoint.On("POST "+keys+"/{rest...}", endpoint.App, h.refuse(makesNoKey)).ReadsNothing(),
	}
}

// none answers with an empty list, of an app that is there.
func (h *Unsupported) none(list any) endpoint.Handler {
	return func(w http.ResponseWriter, r *endpoint.Request) error {
		if _, err := h.Apps.Recall(r.Context(), r.App()); err != nil {
			return err
		}
		return endpoint.WriteJSON(w, http.StatusOK, list)
	}
}

// absent answers that there is no such thing.
func (h *Unsupported) absent(text string) endpoint.Handler {
	return func(_ http.ResponseWriter, r *endpoint.Request) error {
		if _, err := h.Apps.Recall(r.Context(), r.App()); err != nil {
			return err
		}
		return bourse.Errorf(bourse.CodeNotFound, "%s", text)
	}
}

// refuse says why nothing is made.
func (h *Unsupported) refuse(text string) endpoint.Handler {
	return func(_ http.ResponseWriter, r *endpoint.Request) error {
		if _, err := h.Apps.Recall(r.Context(), r.App()); err != nil {
			return err
		}
		return &endpoint.Reply{Status: http.StatusUnprocessableEntity, Err: bourse.Errorf(bourse.CodeInvalid, "%s", text)}
	}
}
