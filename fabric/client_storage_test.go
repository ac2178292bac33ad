package fabric_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/codec"
)

// storageCalls are the calls about volumes, images and usage.
func storageCalls() []clientCall {
	const v, url = bourse.VolumeID("vol_00abc0123456789x"), "/worker/volumes/vol_00abc0123456789x"
	volume := bourse.Volume{ID: v, State: bourse.VolumeCreated, Spec: bourse.VolumeOrder{Name: "data", SizeGB: 3}}
	change := fabric.VolumeChange{RetentionDays: new(7), ScheduledSnaps: new(false)}
	image := bourse.Image{Ref: bourse.ParseImageRef("nginx"), Bytes: 7}
	manifest := map[string]any{"chunks": []any{"x"}}
	return []clientCall{
		{fabric.PathVolumes, "/worker/volumes", nil, []bourse.Volume{volume}, func(ctx context.Context, c *fabric.Client) (any, error) {
			return c.Volumes(ctx, w1, fabric.VolumesQuery{})
		}},
		{fabric.PathVolumes, "/worker/volumes?app=web&deleted=true", nil, []bourse.Volume{volume}, func(ctx context.Context, c *fabric.Client) (any, error) {
			return c.Volumes(ctx, w1, fabric.VolumesQuery{App: "web", Deleted: true})
		}},
		{fabric.PathVolume, url, nil, volume, func(ctx context.Context, c *fabric.Client) (any, error) { return c.Volume(ctx, w1, v) }},
		{fabric.PathVolumeChange, url, change, volume, func(ctx context.Context, c *fabric.Client) (any, error) { return c.VolumeChange(ctx, w1, v, change) }},
		{fabric.PathVolumeExtend, url + "/extend", fabric.ExtendRequest{SizeGB: 9}, volume, func(ctx context.Context, c *fabric.Client) (any, error) { return c.VolumeExtend(ctx, w1, v, 9) }},
		{fabric.PathVolumeDestroy, url + "/destroy", struct{}{}, volume, func(ctx context.Context, c *fabric.Client) (any, error) { return c.VolumeDestroy(ctx, w1, v) }},
		{fabric.PathSnapshot, url + "/snapshots", struct{}{}, bourse.Snapshot{ID: "vs_1", Bytes: 4}, func(ctx context.Context, c *fabric.Client) (any, error) { return c.Snapshot(ctx, w1, v) }},
		{fabric.PathGrant, "/worker/grants/vs_1", fabric.GrantRequest{To: "w2"}, fabric.Grant{Grant: "g"}, func(ctx context.Context, c *fabric.Client) (any, error) {
			g, err := c.Grant(ctx, w1, "vs_1", fabric.GrantRequest{To: "w2"})
			return fabric.Grant{Grant: g}, err
		}},
		{fabric.PathExport, "/worker/exports/vs_1?grant=g", nil, manifest, func(ctx context.Context, c *fabric.Client) (any, error) {
			var m map[string]any
			err := c.Export(w1, "vs_1", "g").Manifest(ctx, &m)
			return m, err
		}},
		{fabric.PathChunk, "/worker/exports/vs_1/chunk?digest=sha256%3Aab&grant=g&n=3", nil, "bytes", func(ctx context.Context, c *fabric.Client) (any, error) {
			return readChunk(c.Export(w1, "vs_1", "g").Chunk(ctx, 3, "sha256:ab"))
		}},
		{fabric.PathImages, "/worker/images", nil, []bourse.Image{image}, func(ctx context.Context, c *fabric.Client) (any, error) { return c.Images(ctx, w1) }},
		{fabric.PathImagePull, "/worker/images/pull", fabric.PullRequest{Image: "nginx"}, image, func(ctx context.Context, c *fabric.Client) (any, error) {
			return c.ImagePull(ctx, w1, "nginx", func(bourse.Image) error { return nil })
		}},
		{fabric.PathImagePrune, "/worker/images/prune", struct{}{}, []bourse.Image{image}, func(ctx context.Context, c *fabric.Client) (any, error) { return c.ImagePrune(ctx, w1) }},
		{fabric.PathUsage, "/worker/machines/148e21ea1d5389/usage", nil, fabric.Usage{CPU: time.Second, Memory: 9}, func(ctx context.Context, c *fabric.Client) (any, error) {
			return c.Usage(ctx, w1, "148e21ea1d5389")
		}},
	}
}

// readChunk reads a chunk, which the test's handler writes as a text.
func readChunk(chunk io.ReadCloser, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer chunk.Close()
	var text string
	b, err := io.ReadAll(chunk)
	return text, errors.Join(err, codec.Unmarshal(b, &text))
}

func TestImagePull(t *testing.T) {
	enough := errors.New("enough")
	const under, there = `{"ref":{},"pull":{"status":"pulling","bytes":1}}` + "\n", `{"ref":{},"bytes":9}` + "\n"
	tests := []struct {
		name   string
		body   string
		stopAt int
		told   int
		code   bourse.Code
	}{
		{"with progress", under + under + there, 0, 2, ""},
		{"of what is there", there, 0, 0, ""},
		{"that nobody waits for any more", under + under + there, 1, 1, bourse.CodeInternal},
		{"without an image", under, 0, 1, bourse.CodeInternal},
		{"without anything", "", 0, 0, bourse.CodeInternal},
		{"of garbage", under + "<html>\n", 0, 1, bourse.CodeInternal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader(tt.body)) })
			told := 0
			image, err := fabric.NewClient(memory{h}).ImagePull(t.Context(), w1, "nginx", func(bourse.Image) error {
				if told++; told == tt.stopAt {
					return enough
				}
				return nil
			})
			if told != tt.told || bourse.CodeOf(err) != tt.code || (tt.stopAt > 0) != errors.Is(err, enough) {
				t.Errorf("got %d lines and %v, want %d and code %q", told, err, tt.told, tt.code)
			}
			if err == nil && image.Bytes != 9 {
				t.Errorf("got %+v", image)
			}
		})
	}
}
