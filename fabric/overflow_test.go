package fabric_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// TestWriteBodyOverflows checks that a reply that is too long results in an error and is not sent at all.
func TestWriteBodyOverflows(t *testing.T) {
	w := httptest.NewRecorder()
	fabric.WriteBody(w, []string{strings.Repeat("x", 64<<20)})
	if w.Code != 400 || w.Body.Len() > 1000 || !strings.Contains(w.Body.String(), string(bourse.CodeInvalid)) {
		t.Errorf("status %d, %d bytes: %.200s", w.Code, w.Body.Len(), w.Body)
	}
}
