package admission_test

import (
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

const (
	allToken = "0123456789abcdef-all"
	orgToken = "0123456789abcdef-org"
	appToken = "0123456789abcdef-app"

	scraperToken = "0123456789abcdef-met"
)

func tokens(t *testing.T, text string) *admission.TokenSet {
	t.Helper()
	set, err := admission.ReadTokens(strings.NewReader(text))
	if err != nil {
		t.Fatalf("read tokens: %v", err)
	}
	return set
}

func TestLookup(t *testing.T) {
	set := tokens(t, "# ours\n\n"+orgToken+" acme\n  "+appToken+"\tacme web  \n"+allToken+" *\n"+scraperToken+" role:scraper\n")
	tests := []struct {
		name  string
		token string
		want  admission.Scope
		ok    bool
	}{
		{"everything's", allToken, admission.Scope{Cluster: true}, true},
		{"an organization's", orgToken, admission.Scope{Org: "acme"}, true},
		{"an app's", appToken, admission.Scope{Org: "acme", App: "web"}, true},
		{"a scraper's", scraperToken, admission.Scope{Scraper: true}, true},
		{"none", "", admission.Scope{}, false},
		{"part of a token", orgToken[:18], admission.Scope{}, false},
		{"one and more", orgToken + "x", admission.Scope{}, false},
		{"in capitals", strings.ToUpper(orgToken), admission.Scope{}, false},
		{"a comment", "#", admission.Scope{}, false},
		{"endless", strings.Repeat("x", 1<<20), admission.Scope{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := set.Lookup(tt.token); got != tt.want || ok != tt.ok {
				t.Errorf("got %+v, %v; want %+v, %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}

// TestReadTokensRefuses checks that invalid token files are refused with errors that do not
// contain a token.
func TestReadTokensRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"an empty file":                    "",
		"comments only":                    "# nothing\n",
		"no organization":                  orgToken,
		"too much":                         orgToken + " acme web more",
		"an app in an unrestricted token":  allToken + " * web",
		"an app in a scraper's token":      allToken + " role:scraper web",
		"an unknown role":                  allToken + " role:admin",
		"two stars":                        allToken + " **",
		"a star as the app":                orgToken + " acme *",
		"a short unrestricted token":       "abc *",
		"a short token":                    "abc acme",
		"a long token":                     strings.Repeat("x", 5000) + " acme",
		"a long line":                      strings.Repeat("x", 1<<20),
		"the wrong order":                  "acme-the-first-org " + orgToken + "_",
		"a token for an app":               orgToken + " acme " + strings.ToUpper(appToken),
		"the same token twice":             orgToken + " acme\n" + orgToken + " other",
		"an organization of 64 characters": orgToken + " " + strings.Repeat("x", 64),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := admission.ReadTokens(strings.NewReader(text))
			if bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Fatalf("got %v, want an error", err)
			}
			if strings.Contains(strings.ToLower(err.Error()), "0123456789abcdef") {
				t.Errorf("the error contains the token: %v", err)
			}
		})
	}
}

func FuzzReadTokens(f *testing.F) {
	f.Add(orgToken+" acme\n", orgToken)
	f.Add(allToken+" *", allToken)
	f.Add("#\n \n"+appToken+" acme web", "x")
	f.Add("\x00 \xff", "")
	f.Fuzz(func(t *testing.T, text, token string) {
		set, err := admission.ReadTokens(strings.NewReader(text))
		if (set == nil) != (err != nil) {
			t.Fatalf("got %v and %v", set, err)
		}
		if err != nil {
			return
		}
		if s, ok := set.Lookup(token); ok && ((s.Org == "") != s.Cluster || !strings.Contains(text, token)) {
			t.Errorf("token %q was accepted as %+v", token, s)
		}
	})
}
