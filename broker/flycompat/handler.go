package flycompat

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Handler returns a handler that serves flyctl's other APIs. It passes all other requests to api,
// which must be the handler of a broker's /v1.
func Handler(api http.Handler) http.Handler {
	mux := http.NewServeMux()
	on := func(pattern string, serve func(*caller, http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := serve(newCaller(api, r), w, r); err != nil {
				writeError(w, err)
			}
		})
	}
	on("POST /graphql", serveGraphQL)
	on("GET /api/v1/organizations", listOrganizations)
	on("GET /api/v1/organizations/{org}", getOrganization)
	on("POST /api/v1/builds", createBuild)
	on("POST /api/v1/builds/finish", finishBuild)
	on("POST /api/v1/releases", createRelease)
	on("PATCH /api/v1/releases/{release}", changeRelease)
	on("GET /api/v1/apps/{app}/releases", listReleases)
	on("GET /api/v1/apps/{app}/releases/current", currentRelease)
	on("GET /api/v1/apps/{app}/logs", getLogs)
	on("/api/v1/", notOffered)
	for _, prefix := range []string{"/api/v1/postgres", "/v1/postgres"} {
		on(prefix, noPostgres)
		on(prefix+"/", noPostgres)
	}
	mux.Handle("/", api)
	return mux
}

func notOffered(_ *caller, _ http.ResponseWriter, r *http.Request) error {
	return bourse.Errorf(bourse.CodeNotFound, "Bourse does not support %s %s: see docs/compatibility.md", r.Method, bourse.Quoted(r.URL.Path))
}

func noPostgres(*caller, http.ResponseWriter, *http.Request) error {
	return bourse.Errorf(bourse.CodeNotFound, "Bourse has no managed Postgres: run a database as a machine with a volume")
}

// maxBody limits a request's body in bytes. A release contains an app's whole
// configuration.
const maxBody = 1 << 20

// readBody reads a body of at most limit bytes. Errors: invalid.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the body exceeds %d bytes", limit)
	}
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read the body: %w", err)
	}
	return raw, nil
}

// decode reads a JSON body. Errors: invalid.
func decode(w http.ResponseWriter, r *http.Request, into any) error {
	raw, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "decode the body: %w", err)
	}
	return nil
}

func writeJSON(w http.ResponseWriter, status int, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return &bourse.Error{Code: bourse.CodeInternal, Message: "internal error", Err: err}
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(append(raw, '\n')) // fails only if the caller has disconnected
	return nil
}

// writeError sends an error in the format that /v1 uses. An error that was returned by /v1 keeps
// its status and request ID.
func writeError(w http.ResponseWriter, err error) {
	code := bourse.CodeOf(err)
	if errors.Is(err, context.Canceled) {
		code = bourse.CodeCanceled
	}
	status := code.Status()
	body := machinesapi.ErrorBody{Error: bourse.MessageOf(err), Status: machinesapi.StatusUnknown, Code: code}
	if e, ok := errors.AsType[*machinesapi.ReplyError](err); ok {
		status, body.RequestID = e.Status, e.RequestID
		w.Header().Set(machinesapi.HeaderRequestID, e.RequestID)
	}
	_ = writeJSON(w, status, body) // this body can always be encoded
}
