package gossip

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

func TestMembership(t *testing.T) {
	all := []bourse.Member{
		{ID: "gru-1", Role: bourse.RoleWorker, Region: "gru", Address: "10.0.0.1:4281"},
		{ID: "gru-2", Role: bourse.RoleWorker, Region: "gru", Address: "10.0.0.2:4281"},
	}
	h := MembersHandler("v1", func() []bourse.Member { return append([]bourse.Member(nil), all...) })
	for query, want := range map[string][]bourse.Member{
		"":                   all,
		"?id=gru-2":          all[1:],
		"?id=gru-1&id=gru-2": all,
		"?id=gru-3":          {},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, PathMembers+query, nil))
		got, err := ReadMembership(w.Result())
		if err != nil || got.Release != "v1" {
			t.Errorf("%q: release %q, %v", query, got.Release, err)
		}
		if diff := cmp.Diff(want, got.Members); diff != "" {
			t.Errorf("%q (-want +got):\n%s", query, diff)
		}
	}
}

func TestReadMembershipOfAnother(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"status": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"body":   func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
	} {
		w := httptest.NewRecorder()
		h(w, nil)
		if _, err := ReadMembership(w.Result()); bourse.CodeOf(err) != bourse.CodeUnavailable {
			t.Errorf("%s: %v, want unavailable", name, err)
		}
	}
}
