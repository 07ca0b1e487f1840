{{/* The image of every role. */}}
{{- define "torrentdist.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The masters' URLs, as lines of a list in TOML. */}}
{{- define "torrentdist.masters" -}}
{{- range $n := until (int .Values.masters.replicas) }}
{{- if $n }}
{{ end -}}
"https://torrentdist-master-{{ $n }}.torrentdist-masters:7060",
{{- end }}
{{- end }}

{{/* The rights of namespaces, as a table in TOML. */}}
{{- define "torrentdist.namespaces" -}}
{ {{- range $i, $key := keys .Values.csi.namespaces | sortAlpha }}{{ if $i }},{{ end }} {{ $key | quote }} = {{ get $.Values.csi.namespaces $key | toJson }}{{ end }} }
{{- end }}
