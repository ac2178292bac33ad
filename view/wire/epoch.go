package wire

import (
	"time"

	"github.com/bourse-dev/bourse"
)

// MaxEpochSkew limits how far an epoch may be ahead of the local clock. An epoch's number is the
// time when it began, in milliseconds. Without this limit, an epoch in the far future would
// supersede all epochs that the site begins later.
const MaxEpochSkew = time.Hour

// CheckEpoch returns CodeInvalid if the stream's epoch is more than MaxEpochSkew in the future.
func CheckEpoch(s Stream, now time.Time) error {
	if limit := uint64(max(now.Add(MaxEpochSkew).UnixMilli(), 1)); s.Epoch > limit {
		return bourse.Errorf(bourse.CodeInvalid, "epoch %d of %s is more than %s ahead of this server's clock", s.Epoch, bourse.Quoted(string(s.Site)), MaxEpochSkew)
	}
	return nil
}
