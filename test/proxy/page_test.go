package proxy

import (
	_ "embed"
	"net/http"
)

//go:embed testdata/page.html
var pageText []byte

// page is a page that tries what browsers can do, and shows how it went.
func page(out http.ResponseWriter, _ *http.Request) {
	out.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = out.Write(pageText) // the browser sees what is missing
}
