package server

import (
	"compress/gzip"
	"encoding/binary"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"hallmark/internal/plaintext"
)

// exportPath is the method of OTLP profiles over gRPC, which is a POST of HTTP/2
// (github.com/grpc/grpc, doc/PROTOCOL-HTTP2.md).
const exportPath = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"

const (
	grpcType   = "application/grpc"
	grpcPrefix = 5 // bytes before a message: whether it is compressed, and its length
)

// exportProfiles is forwardProfiles for gRPC. The message is read as that of HTTP is, within the same memory:
// a framework for gRPC reads and decompresses all of a message before anybody can count it.
func (s *Server) exportProfiles(w *exchange, r *http.Request, who caller) error {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); r.ProtoMajor < 2 || kind != grpcType && kind != grpcType+"+proto" {
		return fail(http.StatusUnsupportedMediaType, "this path is for gRPC with protobuf")
	}
	if err := s.mayForward(r, who); err != nil {
		return err
	}
	raw, err := s.counted(w, r, maxMessage+grpcPrefix)
	if err != nil {
		return err
	}
	var prefix [grpcPrefix]byte
	if _, err := io.ReadFull(raw, prefix[:]); err != nil {
		return s.arrival(r, &statusError{status: http.StatusBadRequest, err: err})
	}
	size := int64(binary.BigEndian.Uint32(prefix[1:]))
	if size > maxMessage {
		return fail(http.StatusRequestEntityTooLarge, "a message of %d bytes, and at most %d are taken", size, maxMessage)
	}
	framed := &atLeast{io.LimitedReader{R: raw, N: size}}
	var body io.Reader = framed
	switch encoding := r.Header.Get("Grpc-Encoding"); {
	case prefix[0] == 0:
	case prefix[0] == 1 && encoding == "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return s.arrival(r, encodingError(encoding, err))
		}
		body = &decoding{&tallied{&atMost{z, maxMessage}, raw.t, 0}, encoding}
	default:
		return fail(http.StatusNotImplemented, "grpc-encoding %.40q: gzip is known", encoding)
	}
	b, done, err := s.readMessage(r, w.client, body)
	if err != nil {
		return err
	}
	defer done()
	if n, _ := raw.Read(prefix[:1]); n > 0 || framed.N > 0 {
		return fail(http.StatusBadRequest, "there is more than one message")
	}
	if err := s.enqueue(r, w.client, b, false); err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", grpcType)
	w.WriteHeader(http.StatusOK)
	_, err = w.Write(make([]byte, grpcPrefix)) // an ExportProfilesServiceResponse without anything
	h.Set(http.TrailerPrefix+"Grpc-Status", "0")
	return ignoreGone(err)
}

// atLeast is a reader whose end is an error if it comes early.
type atLeast struct{ io.LimitedReader }

func (a *atLeast) Read(p []byte) (int, error) {
	n, err := a.LimitedReader.Read(p)
	if err == io.EOF && a.N > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// grpcCodes are what gRPC calls the statuses of HTTP, and 13 (internal) those that are not here. Senders of
// OTLP come again after 14 (unavailable) alone.
var grpcCodes = map[int]int{
	400: 3, 415: 3, // invalid argument
	401: 16, 403: 7,
	404: 12, 501: 12, // not implemented
	413: 8, // resource exhausted
	429: 14, 502: 14, 503: 14, 504: 14,
	499: 1, // cancelled
	508: 9, // failed precondition
}

// grpcError sets the headers of an answer that is an error, and has no body.
func grpcError(h http.Header, status int, text string) {
	code, ok := grpcCodes[status]
	if !ok {
		code = 13
	}
	var message strings.Builder
	for _, c := range []byte(plaintext.Line(text)) {
		if c < ' ' || c > '~' || c == '%' {
			message.WriteString("%" + strings.ToUpper(strconv.FormatInt(int64(c)|0x100, 16)[1:]))
			continue
		}
		message.WriteByte(c)
	}
	h.Set("Content-Type", grpcType)
	h.Set("Grpc-Status", strconv.Itoa(code))
	h.Set("Grpc-Message", message.String())
}
