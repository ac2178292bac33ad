package wire

import (
	"time"

	"github.com/bourse-dev/bourse"
)

// MaxEpochSkew is how far an epoch, which is the time of its beginning in
// milliseconds, may be ahead of our clock. Without a bound, one epoch at the
// end of time would hide a site from all views for good.
const MaxEpochSkew = time.Hour

// CheckEpoch reports CodeInvalid for an epoch that no clock of the cluster can
// have shown yet.
func CheckEpoch(s Stream, now time.Time) error {
	if limit := uint64(max(now.Add(MaxEpochSkew).UnixMilli(), 1)); s.Epoch > limit {
		return bourse.Errorf(bourse.CodeInvalid, "epoch %d of %s is more than %s ahead of our clock", s.Epoch, bourse.Quoted(string(s.Site)), MaxEpochSkew)
	}
	return nil
}
