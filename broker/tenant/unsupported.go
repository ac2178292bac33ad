package tenant

import (
	"net/http"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"
)

// Unsupported serves the Machines API routes that Bourse does not support. It uses Apps to look up the app in a
// request's path.
type Unsupported struct{ Apps *lookup.Apps }

const (
	certificates = endpoint.OneApp + "/certificates"
	keys         = endpoint.OneApp + "/secretkeys"
)

const (
	noCertificate = "certificate not found: proxies manage certificates, not apps"
	noKey         = "secret key not found: this cluster does not store keys for apps"

	makesNoCertificate = "proxies manage certificates, not apps: start a proxy with bourse serve proxy --acme or --certificates"
	makesNoKey         = "this cluster does not store keys for apps: pass a key to the app's machines as a secret"
)

// Routes returns the handler's routes.
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

// none returns a handler that replies with an empty list, or with an error if the app does not
// exist.
func (h *Unsupported) none(list any) endpoint.Handler {
	return func(w http.ResponseWriter, r *endpoint.Request) error {
		if _, err := h.Apps.FindCached(r.Context(), r.App()); err != nil {
			return err
		}
		return endpoint.WriteJSON(w, http.StatusOK, list)
	}
}

// absent returns a handler that replies that the object does not exist. text is the error's
// message.
func (h *Unsupported) absent(text string) endpoint.Handler {
	return func(_ http.ResponseWriter, r *endpoint.Request) error {
		if _, err := h.Apps.FindCached(r.Context(), r.App()); err != nil {
			return err
		}
		return bourse.Errorf(bourse.CodeNotFound, "%s", text)
	}
}

// refuse returns a handler that replies that the object cannot be created. text is the reason.
func (h *Unsupported) refuse(text string) endpoint.Handler {
	return func(_ http.ResponseWriter, r *endpoint.Request) error {
		if _, err := h.Apps.FindCached(r.Context(), r.App()); err != nil {
			return err
		}
		return &endpoint.Reply{Status: http.StatusUnprocessableEntity, Err: bourse.Errorf(bourse.CodeInvalid, "%s", text)}
	}
}
