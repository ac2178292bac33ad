package machines

import (
	"errors"
	"testing"
)

// An image cannot be evicted between the time when it is resolved for a machine and the machine's
// destruction.
func TestAnImageIsHeldUntilItIsRecorded(t *testing.T) {
	var u protected
	recorded := map[string]struct{}{}
	read := func() (map[string]struct{}, error) { return recorded, nil }
	if u.has("a", read) {
		t.Error("no machine has the image")
	}
	u.hold("m1", "a")
	if !u.has("a", read) || u.has("b", read) {
		t.Error("held: a is not in use, or b is in use")
	}
	recorded = map[string]struct{}{"a": {}}
	u.drop("m1")
	if !u.has("a", read) {
		t.Error("the recorded image does not count as in use, because older digests were cached")
	}
	recorded = nil
	u.changed()
	if u.has("a", read) {
		t.Error("the machine is gone, but its image still counts as in use")
	}
	u.changed()
	if !u.has("a", func() (map[string]struct{}, error) { return nil, errors.New("disk") }) {
		t.Error("an image does not count as in use although the store cannot be read")
	}
}
