package gossip

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/bourse-dev/bourse"
)

// PathSelf is the path at which a server serves its gossip names to other servers, which use them
// to check whether it is running. No other server can answer in its place, because that would
// require its certificate.
const PathSelf = "/view/self"

// Self is the response to a request for PathSelf.
type Self struct {
	Names []string `json:"names"` // "id@boot", one per group
}

// SelfHandler returns the handler for PathSelf. groups are the groups that the server is a member
// of.
func SelfHandler(groups ...*Members) http.Handler {
	var self Self
	for _, g := range groups {
		self.Names = append(self.Names, g.name)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(self) // an error means that the caller has disconnected
	})
}

// maxSelf is the maximum size of an encoded Self, in bytes.
const maxSelf = 4 << 10

// ReadSelf reads a server's response to a request for PathSelf. It returns CodeUnavailable if the
// response is an error or is malformed.
func ReadSelf(resp *http.Response) (Self, error) {
	var self Self
	if resp.StatusCode != http.StatusOK {
		return self, bourse.Errorf(bourse.CodeUnavailable, "unexpected status %s", resp.Status)
	}
	err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxSelf)).Decode(&self)
	if err != nil || slices.ContainsFunc(self.Names, func(s string) bool { return len(s) > maxText }) {
		return Self{}, bourse.Errorf(bourse.CodeUnavailable, "invalid answer about its identity")
	}
	return self, nil
}
