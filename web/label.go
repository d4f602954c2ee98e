package web

import (
	"net/http"
	"net/url"
	"strings"

	"hallmark/profile/query"
)

// maxLabels is how many filters by label a question has.
const maxLabels = 100

// labelFilters reads filters of the form key=value, and !key=value for all others, as labelFilter writes them. Values of
// one key are alternatives.
func labelFilters(texts []string) ([]query.LabelFilter, error) {
	if len(texts) > maxLabels {
		return nil, refuse(http.StatusBadRequest, "more than %d labels", maxLabels)
	}
	var filters []query.LabelFilter
texts:
	for _, text := range texts {
		key, value, not, err := parseLabelFilter(text)
		if err != nil {
			return nil, err
		}
		for i := range filters {
			if filters[i].Key == key && filters[i].Not == not {
				filters[i].Values = append(filters[i].Values, value)
				continue texts
			}
		}
		filters = append(filters, query.LabelFilter{Key: key, Values: []string{value}, Not: not})
	}
	return filters, nil
}

func parseLabelFilter(text string) (key, value string, not bool, err error) {
	rest, not := strings.CutPrefix(text, "!")
	key, value, ok := strings.Cut(rest, "=")
	if !ok {
		return "", "", false, refuse(http.StatusBadRequest, "label %q is no key=value", text)
	}
	for _, part := range []*string{&key, &value} {
		if *part, err = url.PathUnescape(*part); err != nil {
			return "", "", false, refuse(http.StatusBadRequest, "label %q: %% is written as %%25", text)
		}
	}
	return key, value, not, nil
}

// maxFilter is how many bytes a filter by label has: it is in URLs.
const maxFilter = 4 << 10

// labelFilter returns the filter that chooses the samples with a value of a label, "" where that is too long for a URL.
// It is plain text, whatever the label is.
func labelFilter(key, value string) string {
	if text := escapeLabel(key) + "=" + escapeLabel(value); len(text) <= maxFilter {
		return text
	}
	return ""
}

var labelSigns = strings.NewReplacer("%", "%25", "=", "%3D", "!", "%21")

func escapeLabel(s string) string {
	if plain(s) == s {
		return labelSigns.Replace(s)
	}
	return strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
}
