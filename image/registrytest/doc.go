// Package registrytest runs a real image registry on loopback for tests, builds images
// and pushes them to it.
//
//	r := registrytest.Start(t, registrytest.Options{})
//	pushed := r.Push(t, "team/web:v1", registrytest.Image{Layers: []registrytest.Layer{registrytest.Busybox(t)}})
//	// pushed.Name is "127.0.0.1:41234/team/web:v1", pushed.Digest "sha256:…"
//
// The registry is the one from the CNCF Distribution project. It runs in the test's process and stores its content in
// memory. A handler in front of it counts requests and bytes, and can delay, stop, break, refuse or corrupt replies.
// For hostile tests, layers may contain malicious entries.
package registrytest
