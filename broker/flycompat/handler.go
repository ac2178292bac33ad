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

// Handler serves flyctl's other APIs, and everything else by api, which is a
// broker's /v1.
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
	return bourse.Errorf(bourse.CodeNotFound, "Bourse does not offer %s %s: docs/compatibility.md says what it does", r.Method, bourse.Quoted(r.URL.Path))
}

func noPostgres(*caller, http.ResponseWriter, *http.Request) error {
	return bourse.Errorf(bourse.CodeNotFound, "Bourse has no managed Postgres: run a database as a machine with a volume")
}

// maxBody bounds a request's body in bytes: a release has an app's whole
// configuration.
const maxBody = 1 << 20

// readBody reads a body of at most most bytes. Codes: invalid.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the body is too long: at most %d bytes", most)
	}
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the body cannot be read: %w", err)
	}
	return raw, nil
}

// decode reads a JSON body. Codes: invalid.
func decode(w http.ResponseWriter, r *http.Request, into any) error {
	raw, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "the body cannot be read: %w", err)
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
	_, _ = w.Write(append(raw, '\n')) // a caller that has left is no error
	return nil
}

// writeError sends an error as /v1 does: its own, or one that came from there.
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
	_ = writeJSON(w, status, body) // this body always encodes
}
