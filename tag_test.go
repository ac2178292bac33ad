package bourse_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

// TestTagsFollowFromTheID: the tags of a worker are its own, in every release;
// machines' ids are made of them.
func TestTagsFollowFromTheID(t *testing.T) {
	if got, want := bourse.WorkerID("gru-1").Tags(), ([bourse.TagChoices]bourse.WorkerTag{0xdb18dd, 0x5183c1, 0xe57824, 0x5006d4}); got != want {
		t.Errorf("the tags of gru-1 are %06x, want %06x for ever", got, want)
	}
	if bourse.WorkerID("gru-2").TagRank(bourse.WorkerID("gru-1").Tags()[0]) != bourse.TagChoices {
		t.Error("gru-2 may have the tag of gru-1")
	}
	rapid.Check(t, func(t *rapid.T) {
		id := bourse.WorkerID(rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "id"))
		for i, tag := range id.Tags() {
			if tag == 0 || tag > 0xffffff || id.TagRank(tag) > i {
				t.Errorf("tag %d of %s is %06x, rank %d", i, id, tag, id.TagRank(tag))
			}
		}
	})
}
