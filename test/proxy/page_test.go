package proxy

import (
	_ "embed"
	"net/http"
)

//go:embed testdata/page.html
var pageText []byte

// page serves a page that tests features of the browser and reports the results.
func page(out http.ResponseWriter, _ *http.Request) {
	out.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = out.Write(pageText) // the browser detects missing data
}
