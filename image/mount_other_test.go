//go:build !linux

package image_test

import "testing"

func (h *host) mount(tb testing.TB, chain string) string {
	tb.Helper()
	tb.Skipf("snapshot %s of %s cannot be mounted: this is not Linux", chain, h.namespace)
	return ""
}
