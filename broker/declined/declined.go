// Package declined answers the calls of the Machines API whose things Bourse does
// not have: certificates of apps, and keys that a server uses for them. Lists
// are empty, none of them is found, and what would make one says why it does
// not. Nothing here is an error of the server: clients would repeat the call.
package declined

import (
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/access"
	"github.com/bourse-dev/bourse/broker/apps"
	"github.com/bourse-dev/bourse/broker/endpoint"
)

// Handler serves them. Apps finds the app of a path.
type Handler struct{ Apps *apps.Store }

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
func (h *Handler) Routes() []endpoint.Route {
	noCertificates := struct {
		Certificates []struct{} `json:"certificates"`
		NextCursor   string     `json:"next_cursor"`
		Total        int        `json:"total_count"`
	}{Certificates: []struct{}{}}
	noKeys := struct {
		Keys []struct{} `json:"secret_keys"`
	}{[]struct{}{}}
	return []endpoint.Route{
		endpoint.On("GET "+certificates, access.App, h.none(noCertificates)).Writes(noCertificates),
		endpoint.On("GET "+certificates+"/{rest...}", access.App, h.absent(noCertificate)),
		endpoint.On("DELETE "+certificates+"/{rest...}", access.App, h.absent(noCertificate)),
		endpoint.On("POST "+certificates+"/{rest...}", access.App, h.refuse(makesNoCertificate)).ReadsNothing(),
		endpoint.On("GET "+keys, access.App, h.none(noKeys)).Writes(noKeys),
		endpoint.On("GET "+keys+"/{rest...}", access.App, h.absent(noKey)),
		endpoint.On("DELETE "+keys+"/{rest...}", access.App, h.absent(noKey)),
		endpoint.On("POST "+keys+"/{rest...}", access.App, h.refuse(makesNoKey)).ReadsNothing(),
	}
}

// none answers with an empty list, of an app that is there.
func (h *Handler) none(list any) endpoint.Handler {
	return func(w http.ResponseWriter, r *endpoint.Request) error {
		if _, err := h.Apps.Recall(r.Context(), r.App()); err != nil {
			return err
		}
		return endpoint.WriteJSON(w, http.StatusOK, list)
	}
}

// absent answers that there is no such thing.
func (h *Handler) absent(text string) endpoint.Handler {
	return func(_ http.ResponseWriter, r *endpoint.Request) error {
		if _, err := h.Apps.Recall(r.Context(), r.App()); err != nil {
			return err
		}
		return bourse.Errorf(bourse.CodeNotFound, "%s", text)
	}
}

// refuse says why nothing is made.
func (h *Handler) refuse(text string) endpoint.Handler {
	return func(_ http.ResponseWriter, r *endpoint.Request) error {
		if _, err := h.Apps.Recall(r.Context(), r.App()); err != nil {
			return err
		}
		return &endpoint.Reply{Status: http.StatusUnprocessableEntity, Err: bourse.Errorf(bourse.CodeInvalid, "%s", text)}
	}
}
