package network

import "github.com/bourse-dev/bourse"

// unavailable returns err with CodeUnavailable, prefixed with the name of the failed operation. It
// returns nil if err is nil.
func unavailable(doing string, err error) error {
	if err == nil {
		return nil
	}
	return bourse.Errorf(bourse.CodeUnavailable, "network: %s: %w", doing, err)
}
