package worker

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/codec"
	"github.com/bourse-dev/bourse/internal/codec/codectest"
	"github.com/bourse-dev/bourse/volume"
)

// The worker's API, as other parts of the project speak it.
func TestVolumeAPI(t *testing.T) {
	h, vols := newVolumeHost(t)
	v := h.placeVolume()
	vols.write(v.ID, "0123456789")
	server := httptest.NewServer(h.Handler())
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	call := func(method, path, body string, into any) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, bytes.NewReader(codectest.Body(t, body)))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var b bytes.Buffer
		if _, err := b.ReadFrom(resp.Body); err != nil {
			t.Fatal(err)
		}
		switch to := into.(type) {
		case nil:
		case *string:
			*to = b.String()
		default:
			unmarshal(t, b.Bytes(), into)
		}
		return resp.StatusCode
	}
	var list []bourse.Volume
	call(http.MethodGet, "/worker/volumes?app=web", "", &list)
	if diff := cmp.Diff([]bourse.Volume{h.getVolume(v.ID)}, list); diff != "" {
		t.Errorf("volumes of the app (-want +got):\n%s", diff)
	}
	if call(http.MethodGet, "/worker/volumes?app=other", "", &list); len(list) != 0 {
		t.Errorf("volumes of another app: %v", list)
	}
	path := "/worker/volumes/" + string(v.ID)
	var got bourse.Volume
	if call(http.MethodGet, path, "", &got); got.Usage == nil || got.Usage.Blocks-got.Usage.BlocksFree != 10 {
		t.Errorf("volume %+v, want 10 blocks in use", got)
	}
	if call(http.MethodPatch, path, `{"retention_days":7,"scheduled_snaps":true}`, &got); got.Spec.RetentionDays != 7 || !got.Spec.ScheduledSnaps {
		t.Errorf("changed %+v", got.Spec)
	}
	if status := call(http.MethodPatch, path, `{"retention_days":61}`, nil); status != http.StatusBadRequest {
		t.Errorf("retention of 61 days: status %d", status)
	}
	if call(http.MethodPost, path+"/extend", `{"size_gb":11}`, &got); got.Spec.SizeGB != 11 {
		t.Errorf("extended %+v", got)
	}
	var snap bourse.Snapshot
	if call(http.MethodPost, path+"/snapshots", "", &snap); snap.State != bourse.SnapshotCreated || snap.RetentionDays != 7 {
		t.Errorf("snapshot %+v", snap)
	}
	for _, id := range []string{string(snap.ID), string(v.ID)} {
		var g fabric.Grant
		call(http.MethodPost, "/worker/grants/"+id, fmt.Sprintf(`{"to":"w2","app":{"name":"web","id":%q}}`, v.AppID), &g)
		grant := "grant=" + g.Grant
		var m volume.Manifest
		if call(http.MethodGet, "/worker/exports/"+id+"?"+grant, "", &m); m.Volume != v.ID || len(m.Chunks) != 3 {
			t.Errorf("manifest of %s: %+v", id, m)
		}
		at := "/worker/exports/" + strings.ReplaceAll(m.ID, " ", "%20")
		var text string
		if status := call(http.MethodGet, at+"/chunk?n=2&"+grant, "", &text); status != http.StatusOK || text != "89" {
			t.Errorf("chunk 2 of %s: %d %q", m.ID, status, text)
		}
		for _, n := range []string{"3", "-1", "x", "99999999999999999999"} {
			if status := call(http.MethodGet, at+"/chunk?n="+n+"&"+grant, "", nil); status < 400 || status >= 500 {
				t.Errorf("chunk %s of %s: status %d", n, m.ID, status)
			}
		}
		if status := call(http.MethodDelete, at+"?"+grant, "", nil); status != http.StatusOK {
			t.Errorf("release %s: status %d", m.ID, status)
		}
	}
	if _, forks := vols.kept(); forks != 0 {
		t.Errorf("%d copies left", forks)
	}
	for _, id := range []string{"nothing", "..%2f..%2fetc", string(bourse.NewVolumeID(1)), string(bourse.NewSnapshotID(1)), "fork%20of%20x"} {
		if status := call(http.MethodGet, "/worker/exports/"+id, "", nil); status != http.StatusForbidden {
			t.Errorf("export of %s: status %d, want it forbidden", id, status)
		}
		if status := call(http.MethodPost, "/worker/grants/"+id, `{"to":"w2","app":{"name":"web"}}`, nil); status != http.StatusNotFound {
			t.Errorf("grant of %s: status %d, want not found", id, status)
		}
	}
	if call(http.MethodPost, path+"/destroy", "", &got); got.State != bourse.VolumeDestroyed {
		t.Errorf("destroyed %+v", got)
	}
	if call(http.MethodGet, "/worker/volumes?deleted=true", "", &list); len(list) != 1 || !slices.Equal(ids(list[0].Snapshots), []bourse.SnapshotID{snap.ID}) {
		t.Errorf("destroyed ones: %+v, want it with its snapshot", list)
	}
}

func ids(list []bourse.Snapshot) (out []bourse.SnapshotID) {
	for _, s := range list {
		out = append(out, s.ID)
	}
	return out
}

func unmarshal(t testing.TB, b []byte, into any) {
	t.Helper()
	if err := codec.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
}
