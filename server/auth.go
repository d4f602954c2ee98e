package server

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"hallmark/internal/atomicfile"
	"hallmark/internal/plaintext"
	"hallmark/internal/regular"
	"hallmark/server/store"
)

// A Role is what a token allows.
type Role string

// The roles. Admin has all of them.
const (
	Read        Role = "read"         // files, sections, sources, metadata
	Symbolize   Role = "symbolize"    // functions and lines
	UploadCI    Role = "upload:ci"    // files, with the trust of those who build them
	UploadAgent Role = "upload:agent" // files, with that of a machine
	Admin       Role = "admin"        // files with the trust of the operator, pins, and all else
)

// Roles are all roles.
var Roles = []Role{Read, Symbolize, UploadCI, UploadAgent, Admin}

// ParseRole returns the role with this name.
func ParseRole(s string) (Role, error) {
	if r := Role(s); slices.Contains(Roles, r) {
		return r, nil
	}
	return "", fmt.Errorf("%q is no role: read, symbolize, upload:ci, upload:agent, admin", s)
}

// A Token is kept as its hash: whoever reads the file of tokens cannot use any. In its place there may be a name
// that certificates of clients have.
type Token struct {
	Name        string    `json:"name"`
	Roles       []Role    `json:"roles"`
	SHA256      string    `json:"sha256,omitempty"`      // of the token
	Certificate string    `json:"certificate,omitempty"` // see ParseCertificateName
	Expires     time.Time `json:"expires,omitzero"`      // zero for no end
}

// tokenStart is what tokens begin with, so that a search for secrets finds them.
const tokenStart = "hallmark_"

// NewToken makes a token. It returns the secret, which is not kept.
func NewToken(name string, roles []Role, expires time.Time) (Token, string) {
	secret := tokenStart + rand.Text()
	return Token{Name: name, Roles: roles, SHA256: hashToken(secret), Expires: expires}, secret
}

// Kinds of names in certificates, before a colon. A name of one kind is none of another: an authority that lets clients
// choose their common name need not let them choose their URI.
const (
	dnsName    = "dns"
	uriName    = "uri"
	emailName  = "email"
	commonName = "cn"
)

// ParseCertificateName returns a name of a certificate as the file of tokens has it: a DNS name, URI or e-mail address of its
// subjectAltName (RFC 5280, section 4.2.1.6), dns:NAME, uri:URI or email:ADDRESS, or the common name of its subject, cn:NAME.
func ParseCertificateName(s string) (string, error) {
	kind, name, _ := strings.Cut(s, ":")
	if name != "" && slices.Contains([]string{dnsName, uriName, emailName, commonName}, kind) {
		return s, nil
	}
	return "", fmt.Errorf("%q is no name of a certificate: dns:NAME, uri:URI, email:ADDRESS, cn:NAME", s)
}

// namesOf returns the names of a certificate.
func namesOf(c *x509.Certificate) (names []string) {
	for _, name := range c.DNSNames {
		names = append(names, dnsName+":"+name)
	}
	for _, u := range urisOf(c) {
		names = append(names, uriName+":"+u)
	}
	for _, address := range c.EmailAddresses {
		names = append(names, emailName+":"+address)
	}
	if c.Subject.CommonName != "" {
		names = append(names, commonName+":"+c.Subject.CommonName)
	}
	return names
}

// Of RFC 5280, section 4.2.1.6: the extension subjectAltName, and the tag of a URI in it.
var subjectAltName = asn1.ObjectIdentifier{2, 5, 29, 17}

const uriTag = 6

// urisOf returns the URIs of a certificate as they are in it: parsed and written again, two of them can be one.
func urisOf(c *x509.Certificate) (uris []string) {
	for _, e := range c.Extensions {
		if !e.Id.Equal(subjectAltName) {
			continue
		}
		var list asn1.RawValue
		if rest, err := asn1.Unmarshal(e.Value, &list); err != nil || len(rest) > 0 {
			return nil
		}
		for rest := list.Bytes; len(rest) > 0; {
			var name asn1.RawValue
			var err error
			if rest, err = asn1.Unmarshal(rest, &name); err != nil {
				return nil
			}
			if name.Class == asn1.ClassContextSpecific && name.Tag == uriTag {
				uris = append(uris, string(name.Bytes))
			}
		}
	}
	return uris
}

func hashToken(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

const maxTokens = 16 << 20 // bytes of the file

// ReadTokens reads a file of tokens. One that is not there has none.
func ReadTokens(name string) ([]Token, error) {
	b, err := regular.ReadFile(name, maxTokens)
	if err != nil {
		return nil, err
	}
	var tokens []Token
	if err := json.Unmarshal(b, &tokens); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, t := range tokens {
		for _, r := range t.Roles {
			if _, err := ParseRole(string(r)); err != nil {
				return nil, fmt.Errorf("%s: token %q: %w", name, t.Name, err)
			}
		}
		switch _, err := ParseCertificateName(t.Certificate); {
		case t.Certificate != "" && err != nil:
			return nil, fmt.Errorf("%s: token %q: %w", name, t.Name, err)
		case t.Certificate != "" && t.SHA256 != "":
			return nil, fmt.Errorf("%s: token %q: a hash and a certificate", name, t.Name)
		case t.Certificate == "" && len(t.SHA256) != 64:
			return nil, fmt.Errorf("%s: token %q: no SHA-256", name, t.Name)
		}
	}
	return tokens, nil
}

// WriteTokens writes a file of tokens, which this user alone can read.
func WriteTokens(name string, tokens []Token) error {
	return atomicfile.Write(name, 0o600, func(w io.Writer) error {
		e := json.NewEncoder(plaintext.JSON(w))
		e.SetIndent("", "  ")
		return e.Encode(tokens)
	})
}

// guard knows who may do what.
type guard struct {
	file string // of tokens; "" lets everybody do all that needs no administrator
	log  func(msg string, args ...any)

	sessions sessions

	mu     sync.Mutex
	tokens []Token
	read   time.Time
}

// tokensAge is how long the file of tokens is not looked at again.
const tokensAge = 5 * time.Second

func (g *guard) load() []Token {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.read) < tokensAge {
		return g.tokens
	}
	g.read = time.Now()
	tokens, err := ReadTokens(g.file)
	if err != nil { // those that were there last stay: a file in the writing locks nobody out
		g.log("tokens cannot be read", "error", err)
		return g.tokens
	}
	g.tokens = tokens
	return tokens
}

// caller is who makes a request.
type caller struct {
	name  string
	roles []Role
}

func (c caller) may(r Role) bool {
	return slices.Contains(c.roles, r) || slices.Contains(c.roles, Admin)
}

// lacks returns the answer to a caller without any of these roles.
func (c caller) lacks(roles ...Role) error {
	var list []string
	for _, r := range roles {
		list = append(list, string(r))
	}
	wanted := "the role " + list[0]
	if len(list) > 1 {
		wanted = "one of the roles " + strings.Join(list, ", ")
	}
	if c.name == "" {
		return fail(http.StatusForbidden, "this takes %s, which nobody has at a server without tokens", wanted)
	}
	return fail(http.StatusForbidden, "%q does not have %s", c.name, wanted)
}

// trust returns how far the word of the caller is believed, false where he may bring no files.
func (c caller) trust() (store.Trust, bool) {
	switch {
	case c.may(Admin):
		return store.Operator, true
	case c.may(UploadCI):
		return store.CI, true
	case c.may(UploadAgent):
		return store.Agent, true
	}
	return "", false
}

var (
	errNoToken = errors.New("this server wants a token: Authorization: Bearer TOKEN")
	errBad     = errors.New("the token is unknown or has expired")
)

// identify returns who makes a request.
func (g *guard) identify(r *http.Request) (caller, error) {
	if g.file == "" {
		return caller{roles: []Role{Read, Symbolize, UploadCI}}, nil
	}
	kind, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") {
		var ok bool
		if _, secret, ok = r.BasicAuth(); !ok { // for clients that know user:password@ alone
			if who, ok := g.session(r); ok {
				return who, nil
			}
			return g.certified(r)
		}
	}
	found, ok := g.known(hashToken(strings.TrimSpace(secret)))
	if !ok {
		return caller{}, errBad
	}
	return found, nil
}

// known returns whom a token is of, by its hash.
func (g *guard) known(hash string) (found caller, ok bool) {
	for _, t := range g.load() {
		if t.SHA256 != "" && subtle.ConstantTimeCompare([]byte(hash), []byte(t.SHA256)) == 1 && t.isValid() {
			found, ok = caller{t.Name, t.Roles}, true
		}
	}
	return found, ok
}

func (t *Token) isValid() bool { return t.Expires.IsZero() || time.Now().Before(t.Expires) }

// certified returns whom the certificate of a client is of: the first entry of the file that has one of its names. The
// TLS server has verified that certificate. A browser sends it with requests that a page of another site makes, too.
func (g *guard) certified(r *http.Request) (caller, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || isForeign(r) {
		return caller{}, errNoToken
	}
	names := namesOf(r.TLS.VerifiedChains[0][0])
	for _, t := range g.load() {
		if t.Certificate != "" && slices.Contains(names, t.Certificate) && t.isValid() {
			return caller{t.Name, t.Roles}, nil
		}
	}
	return caller{}, fmt.Errorf("%w, or a certificate with a name that it knows, and not of %q", errNoToken, names)
}

// isLoopback reports whether a host, with or without a port, is this machine.
func isLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
