// Package duplex is a command's input and output on one request whose body and
// reply go on side by side: the frames that both are made of, and the end of
// the one who asks.
//
// The request's body begins with a [Start]; then come input, resizes and at
// some time the input's end. The reply holds output, with a [Ping] now and then
// so that both ends notice when the other is gone, and ends with one [Exit] or
// one [Failed]. A reply without either was cut off.
//
// Nothing here limits how fast frames come: who does not read makes the other
// wait, as the connection below does.
package duplex
