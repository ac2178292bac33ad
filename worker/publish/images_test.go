package publish

import (
	"slices"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

func TestNewsOfImages(t *testing.T) {
	image := func(digest string, bytes int64, used time.Duration) bourse.Image {
		return bourse.Image{Ref: bourse.ImageRef{Repository: "r", Digest: digest}, Bytes: bytes, UsedAt: time.Unix(0, 0).Add(used)}
	}
	published := map[string]bourse.Image{"a": image("a", 1, 0), "b": image("b", 1, 0), "c": image("c", 1, 0), "d": {}}
	pulling := image("e", 1, 0)
	pulling.Pull = &bourse.PullProgress{}
	there, gone := changedImages(published, []bourse.Image{image("a", 1, imagesAge), image("b", 2, 0), image("d", 1, 0), pulling, image("f", 1, 0)})
	var got []string
	for _, i := range there {
		got = append(got, i.Ref.Digest)
	}
	if !slices.Equal(got, []string{"b", "d", "f"}) || !slices.Equal(gone, []string{"c"}) {
		t.Errorf("publish %v, remove %v; want b, d and f published, and c removed", got, gone)
	}
}
