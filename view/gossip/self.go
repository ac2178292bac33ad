package gossip

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/bourse-dev/bourse"
)

// PathSelf is where a server says how it is called in the gossip, to servers that
// want to know whether it lives: only who has its certificate can answer there.
const PathSelf = "/view/self"

// Self is what a server answers at PathSelf.
type Self struct {
	Names []string `json:"names"` // "id@boot", one for each group
}

// SelfHandler serves PathSelf for a server that is in these groups.
func SelfHandler(groups ...*Members) http.Handler {
	var self Self
	for _, g := range groups {
		self.Names = append(self.Names, g.name)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(self) // the caller may have left
	})
}

// maxSelf bounds what is read of an answer.
const maxSelf = 4 << 10

// ReadSelf reads the answer of a server at PathSelf.
func ReadSelf(resp *http.Response) (Self, error) {
	var self Self
	if resp.StatusCode != http.StatusOK {
		return self, bourse.Errorf(bourse.CodeUnavailable, "it answers %s", resp.Status)
	}
	err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxSelf)).Decode(&self)
	if err != nil || slices.ContainsFunc(self.Names, func(s string) bool { return len(s) > maxText }) {
		return Self{}, bourse.Errorf(bourse.CodeUnavailable, "it does not say who it is")
	}
	return self, nil
}
