package inventory

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse/machinesapi/release"
)

// TestReleaseReadsBackEqual checks that releases can be read back unchanged, and that invalid
// ones are omitted.
func TestReleaseReadsBackEqual(t *testing.T) {
	c := SchemaConn(t)
	at := time.Unix(5, 6).UTC()
	r := release.Release{
		ID: release.NewID(), App: "shop", AppID: "a1", Version: 7, Status: release.Running, Strategy: "rolling", Description: "x", Image: "nginx:1",
		Definition: json.RawMessage(`{"a":[1,"<b>"]}`), Metadata: json.RawMessage(`{"b":2}`), User: "ann", CreatedAt: at, UpdatedAt: at.Add(1),
	}
	bare := release.Release{ID: release.NewID(), App: "lamb", AppID: "a2", Version: 1, Status: release.Failed, CreatedAt: at, UpdatedAt: at}
	for i, each := range []release.Release{r, bare, {ID: "x", AppID: "a1", Status: release.Failed}, {ID: release.NewID(), AppID: "a1", Status: "odd"}} {
		row := ReleaseRow(&each)
		row.Clock = 1
		if i > 1 {
			Plant(t, c, "w2", row)
			continue
		}
		Plant(t, c, "w1", row)
	}
	for app, want := range map[string]release.Release{"a1": r, "a2": bare} {
		list, err := Releases(app)(c)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]release.Release{want}, list); diff != "" {
			t.Errorf("releases of %s (-want +got):\n%s", app, diff)
		}
	}
}
