package admission

import (
	"net/http"
	"strings"

	"github.com/bourse-dev/bourse"
)

// RequireToken lets only callers through to h that show a bearer token that is
// valid for everything; others get 401 or 403. Without a set all are let
// through: where that is allowed is decided by CheckListen.
func RequireToken(h http.Handler, tokens *TokenSet) http.Handler {
	if tokens == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		scope, known := tokens.Lookup(strings.TrimSpace(token))
		switch {
		case !strings.EqualFold(scheme, "bearer") || !known:
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, http.StatusUnauthorized, bourse.CodeUnauthorized, "a bearer token is required")
		case !scope.Cluster:
			refuse(w, http.StatusForbidden, bourse.CodeForbidden, "the token is not good for everything")
		default:
			h.ServeHTTP(w, r)
		}
	})
}
