package admission

import (
	"net/http"
	"strings"

	"github.com/bourse-dev/bourse"
)

// RequireToken wraps h so that it serves only callers with a bearer token that is valid for
// everything. Other callers get status 401 or 403. If tokens is nil, it serves all callers;
// [CheckListen] determines on which addresses this is allowed.
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
			refuse(w, http.StatusForbidden, bourse.CodeForbidden, "the token is not valid for everything")
		default:
			h.ServeHTTP(w, r)
		}
	})
}
