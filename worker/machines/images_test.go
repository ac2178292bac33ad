package machines

import (
	"errors"
	"testing"
)

// An image cannot be evicted at any time between being resolved for a machine and the
// machine's destruction.
func TestAnImageIsHeldUntilItIsRecorded(t *testing.T) {
	var u protected
	recorded := map[string]struct{}{}
	read := func() (map[string]struct{}, error) { return recorded, nil }
	if u.has("a", read) {
		t.Error("no machine has it")
	}
	u.hold("m1", "a")
	if !u.has("a", read) || u.has("b", read) {
		t.Error("held: a is not in use, or b is")
	}
	recorded = map[string]struct{}{"a": {}}
	u.drop("m1")
	if !u.has("a", read) {
		t.Error("recorded, and an older reading hides it")
	}
	recorded = nil
	u.changed()
	if u.has("a", read) {
		t.Error("its machine is gone, and it is in use for ever")
	}
	u.changed()
	if !u.has("a", func() (map[string]struct{}, error) { return nil, errors.New("disk") }) {
		t.Error("an unreadable store lets an image go")
	}
}
