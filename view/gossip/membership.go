package gossip

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/bourse-dev/bourse"
)

// PathMembers is the path at which a server serves its [Membership] to the cluster's other servers.
const PathMembers = "/view/members"

// Membership is a server's list of the cluster's members.
type Membership struct {
	Release string          `json:"release,omitempty"` // release of the server's program, if known
	Members []bourse.Member `json:"members"`           // all members, including the server itself
}

// MembersHandler returns the handler for PathMembers. If a request contains the query parameter id,
// which may be repeated, the answer contains only the members with these ids.
func MembersHandler(release string, members func() []bourse.Member) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list := members()
		if ids := r.URL.Query()["id"]; len(ids) > 0 {
			list = slices.DeleteFunc(list, func(m bourse.Member) bool { return !slices.Contains(ids, string(m.ID)) })
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(Membership{Release: release, Members: list}) // the caller may have disconnected
	})
}

// maxMembership is the maximum size of an encoded Membership, in bytes.
const maxMembership = 16 << 20

// ReadMembership reads a server's response to a request for PathMembers. It returns CodeUnavailable
// if the response is an error or is malformed.
func ReadMembership(resp *http.Response) (Membership, error) {
	var m Membership
	if resp.StatusCode != http.StatusOK {
		return m, bourse.Errorf(bourse.CodeUnavailable, "unexpected status %s", resp.Status)
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxMembership)).Decode(&m); err != nil {
		return m, bourse.Errorf(bourse.CodeUnavailable, "invalid answer about its members: %w", err)
	}
	return m, nil
}
